//! Who paints? One object for both kinds of output: a terminal is drawn over, everything else gets lines.

use super::look::Look;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};

/// Where output goes.
pub struct Screen {
    look: Look,
    out: Box<dyn Write>,
    /// A reader that goes away (`| head`) ends nothing: what was begun is brought to its end unheard.
    goes_on: bool,
    live: Option<Live>,
}

/// A display that is drawn over.
struct Live {
    bar: ProgressBar,
    body: ProgressBar,
    // Draws the two together; dropped last.
    _multi: MultiProgress,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("look", &self.look)
            .finish_non_exhaustive()
    }
}

impl Screen {
    /// stdout.
    pub fn stdout() -> Self {
        Self::new(Look::of_stdout(), Box::new(anstream::stdout()))
    }

    /// Any writer.
    pub fn new(look: Look, out: Box<dyn Write>) -> Self {
        Self {
            look,
            out,
            goes_on: false,
            live: None,
        }
    }

    /// What it can do.
    pub fn look(&self) -> Look {
        self.look
    }

    /// From here on a reader that goes away is no reason to end: others depend on what goes on.
    pub fn go_on_unheard(&mut self) {
        self.goes_on = true;
    }

    /// Writes a line for good; a live display moves down.
    ///
    /// # Errors
    /// Of the writer; after [`Self::go_on_unheard`] not those of a reader that has gone away.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        match self.write(text) {
            Err(error) if self.goes_on && error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = Box::new(io::sink());
                Ok(())
            }
            written => written,
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match &self.live {
            Some(live) => {
                live.bar.suspend(|| writeln!(self.out, "{text}"))?;
            }
            None => writeln!(self.out, "{text}")?,
        }
        self.out.flush()
    }

    /// Shows a live display, or replaces the one that is shown: a bar with `done` of `all`, then lines.
    pub fn draw(&mut self, bar: Option<(usize, usize, &str)>, lines: &[String]) {
        let live = self.live.get_or_insert_with(Live::new);
        if let Some((done, all, beside)) = bar {
            live.bar.set_length(u64::try_from(all).unwrap_or(u64::MAX));
            live.bar
                .set_position(u64::try_from(done).unwrap_or(u64::MAX));
            live.bar.set_message(beside.to_owned());
        } else {
            live.bar.set_style(style("{msg}"));
            live.bar
                .set_message(lines.first().cloned().unwrap_or_default());
        }
        let rest = if bar.is_some() {
            lines
        } else {
            lines.get(1..).unwrap_or(&[])
        };
        live.body.set_message(rest.join("\n"));
        live.bar.tick();
        live.body.tick();
    }

    /// The live display ends; `keep` leaves its last picture.
    pub fn settle(&mut self, keep: bool) {
        if let Some(live) = self.live.take() {
            if keep {
                live.bar.abandon();
                live.body.abandon();
            } else {
                live.body.finish_and_clear();
                live.bar.finish_and_clear();
            }
        }
    }
}

impl Live {
    fn new() -> Self {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stdout_with_hz(10));
        let bar = multi.add(
            ProgressBar::new(0)
                .with_style(style("[{bar:32}] {pos}/{len} VMs gone, {msg}").progress_chars("=> ")),
        );
        let body = multi.add(ProgressBar::new(0).with_style(style("{msg}")));
        Self {
            bar,
            body,
            _multi: multi,
        }
    }
}

/// A template of ours; they are fixed, and without one the text still shows.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_ends_a_look_and_no_drain() {
        let mut screen = Screen::new(Look::plain(), Box::new(Gone));
        assert!(screen.line("a status").is_err());
        screen.go_on_unheard();
        assert!(screen.line("a drain").is_ok());
        assert!(screen.line("its end").is_ok());
    }
}
