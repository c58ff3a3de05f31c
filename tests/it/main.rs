//! it

mod cli;
