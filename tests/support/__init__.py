"""What the tests share: fakes, probes, other systems' formulas, small models."""
