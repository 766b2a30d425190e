"""Tasks by composition: parts of a grammar, chained at random, with demonstrations that are written from the parts.

parts         the parts: lines of the reference and lines of the kernel
values        sign, magnitude and variation of the running value, so that a chain makes sense numerically
grammar       draws compositions, and splits them by pairs of parts
problems      a composition with its dtype, sizes and constants, and the source of its reference
kernels       the sources of its kernels: fast, middling, slow
source        the task source `compose`
"""
