//! What the outside sees of the program besides its interfaces: the journal.

pub mod catalog;
pub mod logging;
