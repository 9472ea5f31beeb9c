"""The programs that are timed, one module per library, each importing it at the top.

A program takes the data of its row and makes all that may be made before the clock starts. It
returns a function that starts an epoch; that call and the iteration are timed.
"""
