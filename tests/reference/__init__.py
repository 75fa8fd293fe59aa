"""Independent definitions of the metrics: plain NumPy float64 loops, slow and obvious.

They share no code with the library and import neither torch nor torchmetrics, so that a mistake
in one cannot hide in the other.
"""
