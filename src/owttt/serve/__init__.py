"""A service that adapts while it serves: one adapter per named stream, answers first, learning after.

decoding    what a request carries → a batch; nothing that could be something else is taken
snapshots   the last states of a stream on disk, to resume from and to go back to
worker      one thread per stream: micro-batches in the order of arrival, answers, learning, snapshots
recent      what was answered lately, and what of it is kept
streams     the streams of a process, made when they are first asked for
app         the HTTP interface (FastAPI), with a token, limits and a dashboard
"""
