"""Text to objects: the configuration, its schema, plug-ins, help, and assembling a run."""
