"""Replace Grain: `import grain` imports the names of gristmill."""
