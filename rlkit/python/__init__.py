"""The Python interface behind `import rlkit`: train, load and compare."""
