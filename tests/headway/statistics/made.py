"""Statistics of batches."""

from headway.statistics.split_statistics import SplitStatistics


def statistics_of(columns, *batches):
    made = SplitStatistics.create(columns)
    for batch in batches:
        made.update(batch)
    return made
