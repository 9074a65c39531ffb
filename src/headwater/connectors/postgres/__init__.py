"""The `postgres` connector: tables read by a growing column or whole, inside one snapshot, over Arrow."""
