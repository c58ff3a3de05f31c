//! In which order do the real controllers write, and does the model keep to it?
