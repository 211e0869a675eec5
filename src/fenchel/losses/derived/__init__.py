"""Losses given as functions: from a PyTorch function to f and g, to the label, to the objective.

`derive` is the entry point, `from_torch` maps torch's own losses. `reading`, `analysis` and `written` find f
and g in a function; `recognition` and `direct` find a closed form; `system`, `krylov` and `implicit` solve
for the label.
"""
