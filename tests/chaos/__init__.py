"""A seeded loop of faults over every command: `python -m tests.chaos --minutes 20 --seed 0`.

Kills, signals, full disks, closed pipes, corrupt files, hostile names and broken model folders. It prints what it
tried, and fails on a lost, doubled or changed record, a traceback, a hang or an unexpected exit code.
"""
