"""Parts of every compiled submission, as real Python: the compiler reads them as text, nobody imports them.

What they take from other parts stands under TYPE_CHECKING and is linked by the compiler.
"""
