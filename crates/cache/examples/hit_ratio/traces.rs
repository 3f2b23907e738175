//! Traces of reads, made from a seed: which object, and its size.

/// Objects that are read by popularity.
pub(crate) const OBJECTS: usize = 50_000;
/// Reads of a trace.
pub(crate) const READS: usize = 400_000;

/// Numbers from a seed (`SplitMix64`).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
}

/// Spreads the bits of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// What is mixed into reads by popularity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mixed {
    /// Nothing.
    Nothing,
    /// A fifth of the reads are scans of 4000 objects that are never read again.
    Scans,
    /// Every 40,000 reads a tenth of the objects, the most popular first, change places with
    /// others.
    Shifts,
}

/// Sizes of objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// 1 MiB each.
    Equal,
    /// From 1 KiB to 256 KiB, each doubling half as probable as the one before, whatever the
    /// popularity: an entry is a page at most, and a page an eighth of its cache.
    Mixed,
}

/// A trace: its name and its reads.
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) reads: Vec<(u64, u64)>,
    /// Bytes of all objects that are read by popularity.
    pub(crate) footprint: u64,
}

impl Trace {
    pub(crate) fn new(exponent: f64, mixed: Mixed, sizes: Sizes, seed: u64) -> Self {
        let mut random = Random(seed);
        let steps = cumulated(exponent);
        let size = |name: u64| match sizes {
            Sizes::Equal => 1 << 20,
            Sizes::Mixed => 1024 << mix(name + (1 << 50)).trailing_zeros().min(8),
        };
        let mut scanned = 1 << 40;
        let reads = (0..READS).map(|at| {
            if mixed == Mixed::Scans && at % 20_000 < 4000 {
                scanned += 1;
                return (scanned, size(scanned));
            }
            let rank = rank(&steps, &mut random);
            let shift = match mixed {
                Mixed::Shifts => at / 40_000 * OBJECTS / 10,
                Mixed::Nothing | Mixed::Scans => 0,
            };
            let name = ((rank + shift) % OBJECTS) as u64;
            (name, size(name))
        });
        let reads = reads.collect();
        let footprint = (0..OBJECTS as u64).map(size).sum();
        let with = match mixed {
            Mixed::Nothing => "",
            Mixed::Scans => ", scans",
            Mixed::Shifts => ", shifting",
        };
        let of = match sizes {
            Sizes::Equal => "",
            Sizes::Mixed => ", mixed sizes",
        };
        let name = format!("zipf {exponent}{with}{of}");
        Self {
            name,
            reads,
            footprint,
        }
    }
}

/// The probability that a rank or a more popular one is read, times 2^53.
fn cumulated(exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut steps: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            let rank = f64::from(u32::try_from(rank).expect("far below 2^32"));
            sum += rank.powf(-exponent);
            sum
        })
        .collect();
    for step in &mut steps {
        *step /= sum;
    }
    steps
}

fn rank(steps: &[f64], random: &mut Random) -> usize {
    let at = f64::from(u32::try_from(random.next() >> 32).expect("32 bits")) / 4_294_967_296.0;
    steps.partition_point(|step| *step <= at).min(OBJECTS - 1)
}
