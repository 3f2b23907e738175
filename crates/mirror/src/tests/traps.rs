//! Single histories, each of which a mirror could get wrong.
