//! Tables and queue logs on disk, checkpoints and recovery.
