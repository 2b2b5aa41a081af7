"""A plug-in of kvbench with one of each: method, storage, benchmark, metric, engine, model and command.

Nothing is imported here: kvbench reads conf/ alone until a run asks for a class.
"""
