"""Layer 1: the contract. What is measured, on what, held against which gate, and who approved it.

Knows files under kernels/ and the wire format's canonical JSON; nothing of measuring, deciding or recording.
"""
