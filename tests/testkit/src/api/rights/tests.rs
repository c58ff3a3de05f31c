//! Does every identity get what the real servers gave it?
