//! Charts as PNG: the SVG, drawn with letters of our own, so that a machine without fonts draws the
//! same picture.

use std::sync::Arc;

use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree, fontdb},
};

/// Pixels for each unit of the SVG: sharp on dense screens and in print.
const SCALE: f32 = 2.0;

/// The font that is linked in.
const FAMILY: &str = "Noto Sans";

/// Why a chart could not be drawn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PictureError {
    /// The SVG is not one.
    #[error("the chart can't be drawn: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// It has no size, or one that no memory holds.
    #[error("the chart has no drawable size")]
    Size,
    /// The picture can't be encoded.
    #[error("the picture can't be encoded: {0}")]
    Encode(String),
}

/// Draws an SVG as PNG.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, PictureError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(notosans::REGULAR_TTF.to_vec());
    fonts.load_font_data(notosans::BOLD_TTF.to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let options = Options {
        font_family: FAMILY.to_owned(),
        fontdb: Arc::new(fonts),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options)?;
    let size = tree
        .size()
        .to_int_size()
        .scale_by(SCALE)
        .ok_or(PictureError::Size)?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or(PictureError::Size)?;
    resvg::render(
        &tree,
        Transform::from_scale(SCALE, SCALE),
        &mut pixels.as_mut(),
    );
    pixels
        .encode_png()
        .map_err(|error| PictureError::Encode(error.to_string()))
}
