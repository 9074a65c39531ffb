"""The HTTP interface: the operations of `app` as paths, their answers and errors as JSON. It decides nothing."""
