"""Exports of statistics to other systems; the facade is `gristmill.exporters`."""
