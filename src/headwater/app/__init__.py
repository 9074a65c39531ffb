"""What a user can do: one typed function per thing, values in and values out.

The only place where the parts are put together. Faces (command line, HTTP, ...) render these answers and add
nothing of their own.
"""
