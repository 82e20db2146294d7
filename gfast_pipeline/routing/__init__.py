"""Layer 4: how far each case is from what the device can do, and what to do about it."""
