"""Random operators: hard selections under noise, averaged or relaxed."""
