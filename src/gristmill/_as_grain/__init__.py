"""Gristmill in the place of Grain: `import grain` imports the names of gristmill."""
