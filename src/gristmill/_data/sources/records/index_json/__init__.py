"""Sources over folders of chunks or shards that an `index.json` lists: LitData and MDS."""
