"""Compiles a portfolio (a generalist and the holders of cells) into one self-contained file: torch and triton only."""
