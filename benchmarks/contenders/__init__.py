"""The measured programs: one module per library, which imports the library at the top.

A program takes the data of its row and creates everything that may exist before the measurement. It
returns a function that starts an epoch. That call and the iteration are measured.
"""
