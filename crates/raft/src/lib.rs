//! Write-ahead log and consensus over the openraft library.
