//! Charts as SVG: bars with their values.

use std::fmt::Write;

/// A group of bars with a title and a unit.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) unit: &'a str,
    /// Label, and a value for each repeat.
    pub(crate) bars: &'a [(String, Vec<f64>)],
}

const WIDTH: f64 = 640.0;
const LEFT: f64 = 150.0;
const ROW: f64 = 34.0;

/// An SVG with charts below each other. A bar is as long as the mean; a line goes from the least to the
/// largest value.
pub(crate) fn svg(heading: &str, charts: &[Chart<'_>]) -> String {
    let rows: usize = charts.iter().map(|chart| chart.bars.len()).sum();
    let height = 60.0 + charts.len() as f64 * 40.0 + rows as f64 * ROW;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"16\">{}</text>\n",
        escape(heading)
    );
    let mut y = 56.0;
    for chart in charts {
        let _ = writeln!(
            out,
            "<text x=\"16\" y=\"{y}\" fill=\"#555\">{} ({})</text>",
            escape(chart.title),
            escape(chart.unit)
        );
        y += 12.0;
        let most = chart.bars.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max);
        for (label, values) in chart.bars {
            bar(&mut out, y, label, values, most);
            y += ROW;
        }
        y += 28.0;
    }
    out.push_str("</svg>\n");
    out
}

fn bar(out: &mut String, y: f64, label: &str, values: &[f64], most: f64) {
    let room = WIDTH - LEFT - 90.0;
    let length = |value: f64| if most > 0.0 { value / most * room } else { 0.0 };
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(0.0, f64::max);
    let middle = y + 11.0;
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
         <rect x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"22\" fill=\"#4477aa\"/>\n\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"#222\"/>\n\
         <text x=\"{:.1}\" y=\"{}\">{mean:.1}</text>",
        LEFT - 8.0,
        y + 16.0,
        escape(label),
        length(mean),
        LEFT + length(if least.is_finite() { least } else { 0.0 }),
        LEFT + length(largest),
        LEFT + length(largest) + 8.0,
        y + 16.0,
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_mean_and_text_is_escaped() {
        let bars = [("a<b".to_string(), vec![50.0, 150.0]), ("half".to_string(), vec![75.0])];
        let chart = Chart { title: "Speed", unit: "tokens/s", bars: &bars };
        let svg = svg("x & y", &[chart]);
        assert!(svg.contains("x &amp; y") && svg.contains("a&lt;b"));
        // The largest value fills the room of 400, and the first mean is two thirds of it.
        assert!(svg.contains("width=\"266.7\"") && svg.contains("width=\"200.0\""), "{svg}");
    }
}
