"""Tree builders: pack candidates into one draft tree. They neither search nor judge."""
