"""The configuration's way into a run is short, and leads through no paper."""

from scripts.maintenance.walk_configuration import climbs, walked


def test_the_configuration_has_few_stations_and_climbs_seldom():
    stations = walked()
    assert len(stations) <= 21, stations
    assert len(climbs(stations)) <= 4, climbs(stations)
    assert not any(name.startswith("kvbench.papers") for name in stations)
