//! What the machine's crashes and the process's deaths leave of a store.

mod crash;
mod recorder;
mod states;
mod world;
