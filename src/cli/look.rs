//! What can the reader see? Width, colours, whether a person or a program reads; and how things are written for each.

use anstyle::{AnsiColor, Style};
use std::io::IsTerminal;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What the output can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns; `None`: lines may be as long as they are (a file, a pipe).
    pub width: Option<usize>,
    /// Lines that a live display may use.
    pub height: usize,
    /// Colours are wanted (a terminal, and `NO_COLOR` is not set).
    pub colour: bool,
    /// Lines may be drawn over.
    pub terminal: bool,
}

impl Look {
    /// Of the stdout of this process.
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let size = terminal_size::terminal_size_of(&stdout);
        let choice = anstream::AutoStream::choice(&stdout);
        Self {
            width: terminal.then(|| size.map_or(80, |(width, _)| usize::from(width.0))),
            height: size.map_or(24, |(_, height)| usize::from(height.0)),
            colour: choice != anstream::ColorChoice::Never,
            terminal,
        }
    }

    /// Neither width nor colours: for a file.
    pub fn plain() -> Self {
        Self {
            width: None,
            height: 24,
            colour: false,
            terminal: false,
        }
    }

    /// The text in a style, where colours are wanted.
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    /// The text cut to the width, with `…` where something is missing.
    pub fn cut(self, text: &str) -> String {
        match self.width {
            Some(width) => cut(text, width),
            None => text.to_owned(),
        }
    }
}

/// What is good, busy, waiting, bad, and what is a heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Done well.
    Good,
    /// Under way.
    Busy,
    /// Not begun.
    Faint,
    /// Needs somebody.
    Bad,
    /// A heading.
    Strong,
}

impl Tone {
    /// As a terminal style.
    pub fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Busy => AnsiColor::Cyan.on_default(),
            Self::Faint => Style::new().dimmed(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Strong => Style::new().bold(),
        }
    }
}

/// Cuts to `width` columns.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1; // the ellipsis
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// Fills up to `width` columns.
pub fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(missing))
}

/// Seconds as a person reads them at a glance: `7s`, `3m05s`, `1h02m`, `2d03h`.
pub fn clock(seconds: f64) -> String {
    let whole =
        std::time::Duration::try_from_secs_f64(seconds.abs()).map_or(0, |span| span.as_secs());
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86400 => format!("{}h{:02}m", whole / 3600, whole % 3600 / 60),
        _ => format!("{}d{:02}h", whole / 86400, whole % 86400 / 3600),
    }
}

/// Bytes as Kubernetes writes them, rounded to three digits: `512Mi`, `8Gi`, `1.5Gi`.
pub fn size(bytes: u64) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut scaled, mut unit) = (u128::from(bytes) * 10, 0);
    while scaled >= 10240 && unit + 1 < units.len() {
        scaled /= 1024;
        unit += 1;
    }
    match (scaled / 10, scaled % 10) {
        (whole, 0) => format!("{whole}{}", units[unit]),
        (whole, tenth) => format!("{whole}.{tenth}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_short() {
        let times = [
            (0.0, "0s"),
            (59.9, "59s"),
            (60.0, "1m00s"),
            (185.0, "3m05s"),
            (3720.0, "1h02m"),
            (-5.0, "5s"),
            (183_600.0, "2d03h"),
            (f64::NAN, "0s"),
        ];
        for (seconds, text) in times {
            assert_eq!(clock(seconds), text);
        }
        let sizes = [
            (0, "0"),
            (512, "512"),
            (1 << 30, "1Gi"),
            (3 << 29, "1.5Gi"),
            (8 << 30, "8Gi"),
            (256 << 40, "256Ti"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_cut_counts_columns_and_shows_that_it_was_made() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(pad("日本", 6), "日本  ");
    }

    #[test]
    fn nothing_is_painted_without_colours() {
        let plain = Look::plain();
        assert_eq!(plain.paint(Tone::Bad.style(), "x"), "x");
        let colour = Look {
            colour: true,
            ..plain
        };
        assert_eq!(
            anstream::adapter::strip_str(&colour.paint(Tone::Bad.style(), "x")).to_string(),
            "x"
        );
        assert_ne!(colour.paint(Tone::Bad.style(), "x"), "x");
    }
}
