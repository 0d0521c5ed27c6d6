"""What a scraper makes of /metrics, for tests."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """Samples of one scrape in Prometheus' text format."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def rows(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Values of all series of a name, by some of their labels; these must tell them apart."""
        found = [(tuple(s.labels[label] for label in labels), s.value) for s in self.samples if s.name == name]
        assert len(dict(found)) == len(found), f"{name} has more series than {labels} tell apart"
        return dict(found)

    def value(self, name: str, /, **labels: str) -> float:
        """Of the one series that has these labels."""
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        assert len(found) == 1, f"{name}{labels}: {len(found)} series"
        return float(found[0])

    def sum(self, name: str, /, **labels: str) -> float:
        """Over all series that have these labels, 0 where there is none."""
        return float(sum(s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()))
