"""Files: read with limits, because somebody else may have made them; written whole, or not at all."""
