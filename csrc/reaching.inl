// Passes over a row in search of few large values; after vector.inl and any.inl.

// Whether any of 2·LANES values is not below `bound`, as NaN never is.
KHOT_INLINE bool reaches(const real* x, vec bound) { return any(~((load(x) < bound) & (load(x + LANES) < bound))); }
