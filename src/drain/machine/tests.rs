//! Stories of one drain, told to the machine input by input.
