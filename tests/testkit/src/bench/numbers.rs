//! Many samples in a few numbers.

use std::time::Duration;

/// Durations in the order in which they were measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn take(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest sample that at least `percent` of all samples do not exceed; `None` without samples.
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// A count for arithmetic; none here comes near the limit of 52 bits.
pub(super) fn float(count: u64) -> f64 {
    u32::try_from(count).map_or_else(
        |_| f64::from(u32::try_from(count >> 20).unwrap_or(u32::MAX)) * 1_048_576.0,
        f64::from,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Samples = [5, 1, 4, 2, 3]
            .into_iter()
            .map(Duration::from_millis)
            .collect();
        assert_eq!(samples.percentile(50), Some(Duration::from_millis(3)));
        assert_eq!(samples.percentile(99), Some(Duration::from_millis(5)));
        assert_eq!(samples.percentile(0), Some(Duration::from_millis(1)));
        assert_eq!(Samples::default().percentile(50), None);
    }

    #[test]
    fn counts_of_any_size() {
        assert!((float(7) - 7.0).abs() < 1e-9);
        assert!((float(8 << 30) - 8.0 * 1_073_741_824.0).abs() < 1.0);
    }
}
