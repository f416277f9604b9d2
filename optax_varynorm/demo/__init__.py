"""The race of ``varynorm demo``: real streams, every learning rate, and one that needs none."""
