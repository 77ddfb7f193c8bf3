//! The HTTP face: routes, one file per noun, errors and the metrics page.
