"""Files that are dropped into a folder and land by themselves: found, waited for until they are whole, taken once.

`folder` lists and reads them and is all that a bucket would have to offer too; `memory` decides which of them are due,
and knows nothing but what it is told; `hashes` keeps the hashes of old ones for the next process; `reading` makes a
batch of a file, `big` reads one that is too large for that. Who looks, and what is told, is the caller's.
"""
