"""What `import rlkit` offers: train, load and compare from Python."""
