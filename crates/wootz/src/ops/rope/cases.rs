//! Cases of rotary encoding for the harness.

use super::{Positions, Rope, wide};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::op::{Case, Entry, Tolerance, evaluate_argument};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let split = Rope::new(8);
    let traditional = Rope { traditional: true, ..split };
    let offset = Rope { positions: Positions::Offset, ..split };
    let given = Rope { positions: Positions::Given, ..split };
    // Angles of the last positions are no larger than others'.
    let mut long = case("1025 positions", split, &[1, 1, 1025, 8], 1);
    long.inputs[1].range = -0.01..0.01;
    let cases = vec![
        case("split", split, &[2, 3, 5, 8], 1),
        case("traditional", traditional, &[2, 3, 5, 8], 1),
        case("many", split, &[2, 4, 33, 16], 1).moves(2 * 2 * 4 * 33 * 16, 1.1),
        case("many, traditional", traditional, &[2, 4, 33, 8], 1).moves(2 * 2 * 4 * 33 * 8, 1.1),
        long,
        case("three axes", Rope { positions: Positions::From(3.0), ..split }, &[2, 4, 8], 1),
        case("no positions", split, &[2, 3, 0, 8], 1),
        // Pairs and rows that share words of 16-bit types.
        case("odd pairs, odd rest", Rope { dims: 6, scale: 0.5, ..split }, &[1, 2, 3, 11], 1),
        case("traditional, odd pairs", Rope { dims: 6, ..traditional }, &[2, 2, 3, 10], 1),
        case("part, amplified", Rope { amplitude: 1.5, ..split }, &[2, 2, 3, 13], 1),
        case("inverse", Rope { inverse: true, amplitude: 0.5, ..split }, &[1, 2, 3, 8], 1),
        case("offset for all", offset, &[2, 3, 4, 8], 1).fixed(2, DType::I32, 0.0..20.0),
        case("offset for each", offset, &[3, 2, 4, 8], 3).fixed(2, DType::I32, 0.0..20.0),
        case("given for all", given, &[2, 3, 4, 8], 1).fixed(2, DType::U8, 0.0..20.0),
        case("given for each", given, &[2, 3, 4, 8], 2).range(-2.0..2.0),
    ];
    vec![Entry { name: super::NAME, cases }, super::append::entry()]
}

/// A case of `x` of some shape, frequencies, and positions of some batches, if they are an input.
fn case(label: &str, rope: Rope, shape: &[usize], batches: usize) -> Case {
    let (half, length) = (rope.dims / 2, shape[shape.len() - 2]);
    // Several axes where positions are given.
    let frequencies = [if rope.positions == Positions::Given { 3 } else { 1 }, half];
    let each = [batches];
    let given = [3, batches, length];
    let mut inputs: Vec<&[usize]> = vec![shape, &frequencies];
    match rope.positions {
        Positions::From(_) => {}
        Positions::Offset => inputs.push(&each),
        Positions::Given => inputs.push(&given),
    }
    Case::new(label, &inputs, move |x| encoded(rope, x)).tolerance(Tolerance::Because(
        8.0,
        "angles are rounded to float32 before their sine is taken, and terms of two cancel",
    ))
}

fn encoded(rope: Rope, x: &[Array]) -> Result<Vec<Array>> {
    let frequencies = x[1].astype(wide(x[0].dtype()))?;
    evaluate_argument(&frequencies)?;
    Ok(vec![rope.apply(&x[0], &frequencies, x.get(2))?])
}
