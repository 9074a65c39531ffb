"""What a second process does to a store, by command line: `child.py ROOT URL WORD...`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.stores import Place, attempt_path, commit, landed, written
from headwater.base.errors import HeadwaterError
from headwater.base.ids import RunId
from headwater.store import records as r
from headwater.store.units import claim


def main() -> None:
    root, url, word, *rest = sys.argv[1:]
    place = Place(Path(root), url)
    store = place.open()
    say = sys.stdout.write
    try:
        match word:
            case "open":
                pass
            case "commit":
                for i in range(int(rest[0])):
                    seq = commit(store, r.ItemsLanded(pipeline="p", table="t", items={f"{rest[1]}/{i}": i}))
                    say(f"{seq}\n")
            case "land":
                lease = claim(store.catalog, RunId(rest[0]), holder="child")
                assert lease is not None
                say(f"{store.commit(landed(lease, written(store, attempt_path(lease))))}\n")
    except HeadwaterError as error:
        say(f"{error.code}\n")
    finally:
        store.close()


if __name__ == "__main__":
    main()
