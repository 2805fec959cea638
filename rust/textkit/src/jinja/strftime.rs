//! The directives of strftime in the C locale.

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// `seconds` counts from 1970 in local time.
pub fn strftime(format: &str, seconds: i64) -> String {
    let moment = Moment::of(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        let plain = directive == Some('-');
        if plain {
            directive = chars.next();
        }
        match directive {
            Some(directive) => out += &moment.format(directive, plain),
            None => out.push('%'),
        }
    }
    out
}

struct Moment {
    seconds: i64,
    year: i64,
    month: i64,
    day: i64,
    /// Day of the year from 1.
    yday: i64,
    /// 0 is Monday.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    fn of(seconds: i64) -> Moment {
        let days = seconds.div_euclid(86_400);
        let of_day = seconds.rem_euclid(86_400);
        // Civil date from days (proleptic Gregorian), counting years from March.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let doe = shifted.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy_march = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy_march + 2) / 153;
        let day = doy_march - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
        Moment {
            seconds,
            year,
            month,
            day,
            yday: before + day + i64::from(leap && month > 2),
            weekday: (days + 3).rem_euclid(7) as usize,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// `plain`: no zeros or spaces in front (`%-d`).
    fn format(&self, directive: char, plain: bool) -> String {
        let Moment { year, month, day, hour, minute, second, .. } = *self;
        let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[self.weekday]);
        let two = |n: i64| if plain { n.to_string() } else { format!("{n:02}") };
        match directive {
            'Y' => year.to_string(),
            'y' => two(year.rem_euclid(100)),
            'm' => two(month),
            'd' => two(day),
            'e' if plain => day.to_string(),
            'e' => format!("{day:2}"),
            'H' => two(hour),
            'I' if hour % 12 == 0 => two(12),
            'I' => two(hour % 12),
            'M' => two(minute),
            'S' => two(second),
            'p' => (if hour < 12 { "AM" } else { "PM" }).into(),
            'B' => month_name.into(),
            'b' | 'h' => month_name[..3].into(),
            'A' => day_name.into(),
            'a' => day_name[..3].into(),
            'j' if plain => self.yday.to_string(),
            'j' => format!("{:03}", self.yday),
            'u' => (self.weekday + 1).to_string(),
            'w' => ((self.weekday + 1) % 7).to_string(),
            'f' => "000000".into(),
            's' => self.seconds.to_string(),
            'z' | 'Z' => String::new(),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'T' | 'X' => format!("{hour:02}:{minute:02}:{second:02}"),
            'R' => format!("{hour:02}:{minute:02}"),
            'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            'c' => format!("{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}", &day_name[..3], &month_name[..3]),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            other => format!("%{other}"),
        }
    }
}
