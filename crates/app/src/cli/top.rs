//! `flashyard top`.

use clap::Args;

use super::Reach;
use crate::options::interval;
use crate::top::Tab;

/// `flashyard top`.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: Tab or 1 to 5 another table; arrows, PgUp, PgDn, Home, End move; < > or s sort by another column, r turns it\n\
        round; / filters, Esc shows all again; Enter shows `why` of the tenant or of the volume's tenant; p pauses; + and -\n\
        change the interval; ? is help, q or Ctrl-C ends. The first figures are since the target started, all others of\n\
        the last interval. A target that goes away is waited for.\n\n\
        Examples:\n  flashyard top\n  flashyard top --tab volumes --sort p99 --interval 5\n  \
        flashyard top --filter db\n  flashyard top --once --tab cores\n  flashyard top --once --json"
)]
pub struct TopArgs {
    /// How to reach the target.
    #[command(flatten)]
    pub reach: Reach,
    /// The table to begin with
    #[arg(long, help_heading = "What to show", value_enum, default_value_t = Tab::Tenants)]
    pub tab: Tab,
    /// The column to sort by: its title, or its key in JSON
    #[arg(long, help_heading = "What to show", value_name = "COLUMN")]
    pub sort: Option<String>,
    /// Only rows with this text in them, in capitals or not
    #[arg(long, help_heading = "What to show", value_name = "TEXT")]
    pub filter: Option<String>,
    /// Seconds from one look to the next
    #[arg(long, help_heading = "What to show", value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print one table, of one interval, and end
    #[arg(long, help_heading = "Output")]
    pub once: bool,
}
