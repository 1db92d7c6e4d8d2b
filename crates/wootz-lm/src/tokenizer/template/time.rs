//! The date in templates: `strftime`, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A time written in a format of C's `strftime`.
pub(super) fn format(time: SystemTime, format: &str) -> Result<String, Error> {
    let date = Date::of(time);
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut directive = characters.next();
        // Without zeros in front.
        let bare = directive == Some('-');
        if bare {
            directive = characters.next();
        }
        out += &date.write(directive, bare).ok_or_else(|| {
            let name: String = directive.into_iter().collect();
            let what = format!("strftime_now: %{name} in {format:?} is not supported");
            Error::new(ErrorKind::InvalidOperation, what)
        })?;
    }
    Ok(out)
}

struct Date {
    year: i64,
    /// From 0, as all that follow.
    month: usize,
    day: usize,
    day_of_year: usize,
    /// From Monday.
    weekday: usize,
    seconds: usize,
}

impl Date {
    fn of(time: SystemTime) -> Date {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(0),
            Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(0),
        };
        let days = seconds.div_euclid(86_400);
        let mut rest = days;
        let mut year = 1970;
        while rest < 0 || rest >= year_length(year) {
            // A year is at least 365 days, so this never goes too far by more than a year.
            let step = (rest / 366).clamp(-1000, 1000);
            let step = if step == 0 { if rest < 0 { -1 } else { 1 } } else { step };
            rest -= days_between(year, year + step);
            year += step;
        }
        let day_of_year = usize::try_from(rest).unwrap_or(0);
        let (mut month, mut day) = (0, day_of_year);
        while day >= month_length(year, month) {
            day -= month_length(year, month);
            month += 1;
        }
        // The first day of 1970 was a Thursday.
        let weekday = usize::try_from((days + 3).rem_euclid(7)).unwrap_or(0);
        let seconds = usize::try_from(seconds.rem_euclid(86_400)).unwrap_or(0);
        Date { year, month, day, day_of_year, weekday, seconds }
    }

    fn write(&self, directive: Option<char>, bare: bool) -> Option<String> {
        let padded = |number: usize, width: usize| {
            if bare { number.to_string() } else { format!("{number:0width$}") }
        };
        let (hour, minute, second) =
            (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        let short = |name: &str| name.chars().take(3).collect::<String>();
        let inner = |pattern: &str| {
            let parts = pattern.chars().map(|part| match part {
                part if part.is_ascii_alphabetic() => self.write(Some(part), false),
                other => Some(other.to_string()),
            });
            parts.collect::<Option<String>>()
        };
        Some(match directive? {
            'Y' => self.year.to_string(),
            'y' => padded(usize::try_from(self.year.rem_euclid(100)).ok()?, 2),
            'm' => padded(self.month + 1, 2),
            'd' => padded(self.day + 1, 2),
            'e' => format!("{:2}", self.day + 1),
            'j' => padded(self.day_of_year + 1, 3),
            'B' => MONTHS.get(self.month)?.to_string(),
            'b' | 'h' => short(MONTHS.get(self.month)?),
            'A' => DAYS.get(self.weekday)?.to_string(),
            'a' => short(DAYS.get(self.weekday)?),
            'u' => (self.weekday + 1).to_string(),
            'w' => ((self.weekday + 1) % 7).to_string(),
            'H' => padded(hour, 2),
            'I' => padded((hour + 11) % 12 + 1, 2),
            'M' => padded(minute, 2),
            'S' => padded(second, 2),
            'f' => "000000".into(),
            'p' => if hour < 12 { "AM" } else { "PM" }.into(),
            'F' => inner("Y-m-d")?,
            'T' | 'X' => inner("H:M:S")?,
            'R' => inner("H:M")?,
            'D' | 'x' => inner("m/d/y")?,
            'c' => inner("a b e H:M:S Y")?,
            // Python's clock without a zone writes nothing here.
            'Z' | 'z' => String::new(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            _ => return None,
        })
    }
}

fn leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn year_length(year: i64) -> i64 {
    365 + i64::from(leap(year))
}

/// From the beginning of a year to that of another, which may be before.
fn days_between(from: i64, to: i64) -> i64 {
    let before = |year: i64| {
        let last = year - 1;
        year * 365 + last.div_euclid(4) - last.div_euclid(100) + last.div_euclid(400)
    };
    before(to) - before(from)
}

fn month_length(year: i64, month: usize) -> usize {
    match month {
        1 => 28 + usize::from(leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_pythons_strftime() {
        // datetime.fromtimestamp(SECONDS, timezone.utc).strftime("%Y-%m-%d %H:%M:%S %A %d %B %j %-d %I %p")
        let cases = [
            (0, "1970-01-01 00:00:00 Thursday 01 January 001 1 12 AM"),
            (951_827_696, "2000-02-29 12:34:56 Tuesday 29 February 060 29 12 PM"),
            (1_704_067_199, "2023-12-31 23:59:59 Sunday 31 December 365 31 11 PM"),
            (1_767_225_600, "2026-01-01 00:00:00 Thursday 01 January 001 1 12 AM"),
            (4_102_444_799, "2099-12-31 23:59:59 Thursday 31 December 365 31 11 PM"),
            (32_503_680_000, "3000-01-01 00:00:00 Wednesday 01 January 001 1 12 AM"),
        ];
        for (seconds, expected) in cases {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            let written = format(time, "%Y-%m-%d %H:%M:%S %A %d %B %j %-d %I %p");
            assert_eq!(written.ok().as_deref(), Some(expected));
        }
        assert!(format(UNIX_EPOCH, "%Q").is_err());
    }
}
