"""Cron expressions in words: when they fire, however that is written."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from stepwell.kernel.clock import to_micros
from stepwell.kernel.schedules import Schedule

SENTENCES = {
    "* * * * *": "Every minute",
    "*/1 * * * *": "Every minute",
    "*/5 * * * *": "Every 5 minutes",
    "*/7 * * * *": "At 0, 7, 14, 21, 28, 35, 42, 49 and 56 minutes past every hour",
    "*/25 * * * *": "At 0, 25 and 50 minutes past every hour",
    "*/60 * * * *": "Every hour",
    "0-59 * * * *": "Every minute",
    "0 * * * *": "Every hour",
    "00 * * * *": "Every hour",
    "01 * * * *": "At 1 minute past every hour",
    "5 * * * *": "At 5 minutes past every hour",
    "5,35 * * * *": "At 5 and 35 minutes past every hour",
    "1,2,3 */2 * * *": "Every minute from 1 to 3 past every 2nd hour from 00:00",
    "10-20 * * * *": "Every minute from 10 to 20 past every hour",
    "10-50/20 * * * *": "At 10, 30 and 50 minutes past every hour",
    "*/15 8,18 * * *": "Every 15 minutes from 08:00 to 08:45 and from 18:00 to 18:45",
    "*/5 0 1 * *": "Every 5 minutes from 00:00 to 00:55, on the 1st of the month",
    "* 2 * * *": "Every minute from 02:00 to 02:59",
    "*/30 2 * * *": "At 02:00 and 02:30, every day",
    "30 2 * * *": "At 02:30, every day",
    "02 02 * * *": "At 02:02, every day",
    "0,30 2 * * *": "At 02:00 and 02:30, every day",
    "0 0 * * *": "At 00:00, every day",
    "0 12 * * *": "At 12:00, every day",
    "30 9-9 * * *": "At 09:30, every day",
    "*/10 9-9 * * *": "Every 10 minutes from 09:00 to 09:50",
    "0 9-17 * * *": "Every hour from 09:00 to 17:00",
    "0 9-17/2 * * *": "At 09:00, 11:00, 13:00, 15:00 and 17:00, every day",
    "0 */1 * * *": "Every hour",
    "30 */1 * * *": "At 30 minutes past every hour",
    "0 */2 * * *": "Every 2 hours from 00:00",
    "0 */5 * * *": "At 00:00, 05:00, 10:00, 15:00 and 20:00, every day",
    "0 */24 * * *": "At 00:00, every day",
    "15 */6 * * 1": "Every 6 hours from 00:15, on Monday",
    "0 0-23 * * *": "Every hour",
    "0 8,9,10,11,12,13,14 * * *": "Every hour from 08:00 to 14:00",
    "0 22-23,0-2 * * *": "At 00:00, 01:00, 02:00, 22:00 and 23:00, every day",
    "0 0 1 * *": "At 00:00, on the 1st of the month",
    "0 0 1,15 * *": "At 00:00, on the 1st and 15th of the month",
    "0 0 1-7 * *": "At 00:00, on the 1st to 7th of the month",
    "0 0 31 * *": "At 00:00, on the 31st of the month",
    "0 0 L * *": "At 00:00, on the last day of the month",
    "0 0 LW * *": "At 00:00, on the last day from Monday to Friday of the month",
    "0 0 L,15 * *": "At 00:00, on the 15th and the last day of the month",
    "0 0 */2 * *": "At 00:00, on every 2nd day of the month from the 1st",
    "0 0 */1 * *": "At 00:00, every day",
    "0 0 1-31 * *": "At 00:00, every day",
    "0 0 29 2 *": "At 00:00, on the 29th of February",
    "0 0 1 1 *": "At 00:00, on the 1st of January",
    "0 0 1 */3 *": "At 00:00, on the 1st of January, April, July and October",
    "0 0 1 1,4,7,10 *": "At 00:00, on the 1st of January, April, July and October",
    "0 0 * 2 *": "At 00:00, every day in February",
    "0 0 * 6-8 *": "At 00:00, every day in June to August",
    "0 0 * */1 *": "At 00:00, every day",
    "0 0 * 1-12 *": "At 00:00, every day",
    "0 0 * * 1": "At 00:00, on Monday",
    "0 0 * * 1-5": "At 00:00, Monday to Friday",
    "0 0 * * MON-FRI": "At 00:00, Monday to Friday",
    "0 0 * * 6,0": "At 00:00, on Saturday and Sunday",
    "0 0 * * 0-6": "At 00:00, every day",
    "0 0 * * 0-7": "At 00:00, every day",
    "0 0 * * 1-7": "At 00:00, every day",
    "0 0 * * 5-7": "At 00:00, Friday to Sunday",
    "0 0 * * */1": "At 00:00, every day",
    "0 0 * * */2": "At 00:00, on Tuesday, Thursday, Saturday and Sunday",
    "0 0 * * 1-5/2": "At 00:00, on Monday, Wednesday and Friday",
    "0 12 * * MON-FRI,SUN": "At 12:00, Sunday to Friday",
    "0 0 * * 1#2": "At 00:00, on the 2nd Monday of the month",
    "0 0 * * 5L": "At 00:00, on the last Friday of the month",
    "0 0 * * 1#1,1#3": "At 00:00, on the 1st Monday and the 3rd Monday of the month",
    "0 0 * 2 5L": "At 00:00, on the last Friday of February",
    "0 0 13 * 5": "At 00:00, on the 13th of the month or on Friday",
    "0 0 1 2,3 1": "At 00:00, on the 1st of the month or on Monday, only in February and March",
    "0 0 1,15 * 1-5": "At 00:00, on the 1st and 15th of the month or from Monday to Friday",
    "0 0 1-7 * 1": "At 00:00, on the 1st to 7th of the month or on Monday",
    "0 0 1-7 * */2": "At 00:00, on the 1st to 7th of the month if it is a Tuesday, a Thursday, a "
    "Saturday or a Sunday",
    "0 0 */2 * 1": "At 00:00, on every 2nd day of the month from the 1st if it is a Monday",
    "0 0 */1 * 5": "At 00:00, on Friday",
    "0 0 L * 5": "At 00:00, on the last day of the month or on Friday",
    "0 0 1 * 1#1": "At 00:00, on the 1st of the month or on the 1st Monday of the month",
    "0 0 1 1 ?": "At 00:00, on the 1st of January",
    "0 0 ? * 1": "At 00:00, on Monday",
    "0 0 ? * ?": "At 00:00, every day",
    "0 0 * 1-3,12 1": "At 00:00, on Monday in January to March and December",
    "*/5 9-17 * * 1-5": "Every 5 minutes from 09:00 to 17:55, Monday to Friday",
    "*,5 * * * *": "Every minute",
    "5-5 * * * *": "At 5 minutes past every hour",
    "0 0 *,1 * 1": "At 00:00, on Monday",
    "0 9 * 1 1": "At 09:00, on Monday in January",
    "* * 1 * *": "Every minute, on the 1st of the month",
    "* * * 1 *": "Every minute, every day in January",
    "* * * * 1": "Every minute, on Monday",
    "*/15 * * * 1-5": "Every 15 minutes, Monday to Friday",
    "5,35 * * JAN,JUL SUN": "At 5 and 35 minutes past every hour, on Sunday in January and July",
    "@hourly": "Every hour",
    "@weekly": "At 00:00, on Sunday",
    "@yearly": "At 00:00, on the 1st of January",
    "@monthly": "At 00:00, on the 1st of the month",
    "0 0 1 2 1#2": "At 00:00, on the 1st of the month or on the 2nd Monday of the month, only "
    "in February",
    "* 9-17 * * *": "Every minute from 09:00 to 17:59",
    "0 0 5-5 * *": "At 00:00, on the 5th of the month",
    "0 0 * 3-3 *": "At 00:00, every day in March",
    "0 0 * * 1-1": "At 00:00, on Monday",
    "0 1-3,1-4 * * *": "At 01:00, 02:00, 03:00 and 04:00, every day",
    "0 0 1-15/2 * *": "At 00:00, on the 1st, 3rd, 5th, 7th, 9th, 11th, 13th and 15th of the month",
    "0 0 * 1-6/2 *": "At 00:00, every day in January, March and May",
    "3,1,2 4 * * *": "At 04:01, 04:02 and 04:03, every day",
    "0 0 8-14 * 1": "At 00:00, on the 8th to 14th of the month or on Monday",
    "0 0 10,L * *": "At 00:00, on the 10th and the last day of the month",
    "10/20 * * * *": "At 10, 30 and 50 minutes past every hour",
    "0 0 * * 1/2": "At 00:00, on Monday, Wednesday, Friday and Sunday",
    "0 0 * * */3": "At 00:00, on Wednesday, Saturday and Sunday",
    "0 0 * * */7": "At 00:00, on Sunday",
    "0 0 */10 * *": "At 00:00, on the 1st, 11th, 21st and 31st of the month",
    "0 0 */3 2 *": "At 00:00, on every 3rd day of February from the 1st",
    "*/5 */2 * * *": "Every 5 minutes of every 2nd hour from 00:00",
    "* */2 * * *": "Every minute of every 2nd hour from 00:00",
    "0 8-20/2 * * *": "Every 2 hours from 08:00 to 20:00",
    "0 0-4,6-9 * * *": "Every hour from 00:00 to 04:00 and from 06:00 to 09:00",
    "0 1,3,4,5,6,7,9 * * *": "Every hour from 03:00 to 07:00, at 01:00 and at 09:00",
    "7,9 9-17 * * *": "At 7 and 9 minutes past the hour, from 09:07 to 17:09, every day",
    "1,2,3 1,2,5,6,9 * * *": "Every minute from 1 to 3 past the hours 1, 2, 5, 6 and 9",
    "1,3 1,2,5,6,9 1-31 * 1": "At 1 and 3 minutes past the hours 1, 2, 5, 6 and 9, every day",
    "0 0 * * SUN-THU": "At 00:00, Sunday to Thursday",
    "0 0 * * SAT,SUN,MON": "At 00:00, Saturday to Monday",
    "0 0 * * 1,5L": "At 00:00, on Monday and the last Friday of the month",
    "0 0 LW,1 * *": "At 00:00, on the 1st and the last day from Monday to Friday of the month",
    "0 0 13 * 0-6": "At 00:00, every day",
    "0 0 13 * */1": "At 00:00, on the 13th of the month",
    "0 0 1-31 * 1": "At 00:00, every day",
    "0 */8 * * *": "At 00:00, 08:00 and 16:00, every day",
    "0 0,12 * * *": "At 00:00 and 12:00, every day",
    "0 0 1 * 6,0": "At 00:00, on the 1st of the month or on Saturday and Sunday",
    "0 0 1 1 1-5": "At 00:00, on the 1st of the month or from Monday to Friday, only in January",
    "0 2 * * 1-5": "At 02:00, Monday to Friday",
    "@daily": "At 00:00, every day",
    "*/90 * * * *": "Every hour",
    "15,45 * * * *": "At 15 and 45 minutes past every hour",
    "30 9-17 * * mon,wed,fri": "Every hour from 09:30 to 17:30, on Monday, Wednesday and Friday",
    "*/15 9-17 * * MON-FRI": "Every 15 minutes from 09:00 to 17:45, Monday to Friday",
    "0 9,17 * jan *": "At 09:00 and 17:00, every day in January",
    "0 9 1-7,15 * *": "At 09:00, on the 1st to 7th and 15th of the month",
    "0 9 2,3,11,22 3-5,DEC *": "At 09:00, on the 2nd, 3rd, 11th and 22nd of March to May and "
    "December",
    "0 0 L * ?": "At 00:00, on the last day of the month",
    "30 2 * * 1#2": "At 02:30, on the 2nd Monday of the month",
    "30 2 * * 5L,7": "At 02:30, on Sunday and the last Friday of the month",
    "*/15 * * 6-8 *": "Every 15 minutes, every day in June to August",
    "0 */10 * * *": "At 00:00, 10:00 and 20:00, every day",
    "0 0 * * 0,7": "At 00:00, on Sunday",
    "0 12 */2 * *": "At 12:00, on every 2nd day of the month from the 1st",
    "0 */6 * * *": "Every 6 hours from 00:00",
    "0 7-7/3 * * *": "At 07:00, every day",
    "0 07-7/3 * * *": "At 07:00, every day",
    "5-5/20 * * * *": "At 5 minutes past every hour",
    "0 0 9-9/10 * *": "At 00:00, on the 9th of the month",
    "0 0 * 2-2/3 *": "At 00:00, every day in February",
    "0 0 * * FRI-FRI/2": "At 00:00, on Friday",
    "0 0 * * MON-1/2": "At 00:00, on Monday, Wednesday, Friday and Sunday",
    "0 0 1 JAN-1/6 *": "At 00:00, on the 1st of January and July",
    "0 0 L/2 * *": "At 00:00, on the last day of the month",
    "0 0 L,LW * *": "At 00:00, on the last day and the last day from Monday to Friday of the month",
    "0 0 * * 0#1,7#1": "At 00:00, on the 1st Sunday of the month",
    "0 0 * * 1#3,1L": "At 00:00, on the last Monday and the 3rd Monday of the month",
}


@pytest.mark.parametrize("cron", SENTENCES)
def test_a_sentence_says_when_it_fires(cron: str) -> None:
    found = Schedule(cron=cron, zone="Europe/Berlin").described()
    assert found == f"{SENTENCES[cron]}, in Europe/Berlin."


# Ways to write each field, many of which mean the same.
FIELDS = (
    ("0", "00", "*/60", "5-5/20", "5", "*/30", "0,30", "0/30", "*/25", "1,2,3", "1-3"),
    ("7", "7-7/3", "7/3", "7,10,13,16,19,22", "*", "0-23", "*/6", "0/6", "1,2,5,6,9"),
    ("*", "*/1", "1-31", "1", "1-1/5", "1/15", "1,16,31", "L", "L/2", "LW", "L,LW", "15,L", "*/9"),
    ("*", "1-12", "JAN", "1-1/3", "JAN-1/3", "1/3", "*/3", "1,4,7,10"),
    ("*", "0-6", "MON", "1-1/2", "MON-1/2", "1/2", "*/2", "0/2", "1#2", "MON#2", "5L", "0,5L"),
)


def test_what_is_told_the_same_fires_at_the_same_times() -> None:
    random, begin = Random(7), to_micros(datetime(2026, 1, 1, tzinfo=UTC))
    told: dict[str, dict[str, list[int]]] = {}
    for _ in range(600):
        cron = " ".join(random.choice(field) for field in FIELDS)
        schedule = Schedule(cron=cron)
        told.setdefault(schedule.described(), {})[cron] = schedule.next_fires(begin, 100)
    several = [fires for fires in told.values() if len(fires) > 1]
    assert len(several) > 20
    for fires in several:
        first, *others = fires.values()
        assert all(each == first for each in others), list(fires)
